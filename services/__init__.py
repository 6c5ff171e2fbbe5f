"""The long-running processes: scaler, learner and the local Lambda emulator."""
