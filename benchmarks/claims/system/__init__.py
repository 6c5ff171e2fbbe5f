"""Claims about the system around them: wire, scaler, start, dashboard, sweeps."""
