"""Other people's frameworks, each with its own sampler and with Nitro's actors.

The scripts run in the frameworks' own environments and import nothing of the other experiments.
"""
