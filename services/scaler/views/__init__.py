"""What people look at, from what the scaler remembers; nothing here decides anything."""
