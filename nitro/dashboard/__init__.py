"""The scaler's page in a browser: its address, and the same page over the folders of runs."""
