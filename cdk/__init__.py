"""The CDK app: every AWS resource of Nitro, in one stack."""
