"""What the emulator answers: to callers in front, to environments behind, to operators."""
