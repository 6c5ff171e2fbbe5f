"""The scaler owns jobs, decides each round's number of actors, launches them and bills them."""
