"""The dead-man switch: turns off the capacity of a silent scaler."""
