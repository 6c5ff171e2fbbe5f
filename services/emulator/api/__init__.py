"""The emulator's APIs: for callers in front, for environments behind, for operators."""
