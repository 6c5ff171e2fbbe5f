"""The scaler's web page: its address, and the same page for finished runs."""
