"""The scaler: owns jobs, decides how many actors a round is worth, launches and bills them."""
