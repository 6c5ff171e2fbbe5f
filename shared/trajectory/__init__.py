"""What one actor brings back, and how it lies in bytes."""
