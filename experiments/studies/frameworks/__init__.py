"""Other frameworks with their own sampler and with Nitro's actors."""
