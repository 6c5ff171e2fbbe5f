"""The dead-man switch: turns off what a silent scaler left on."""
