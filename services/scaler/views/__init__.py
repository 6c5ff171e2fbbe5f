"""Views for people, from the scaler's records; nothing here decides anything."""
