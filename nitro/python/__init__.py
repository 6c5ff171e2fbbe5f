"""The API of `import nitro`: training, runs and policies in a few lines of Python."""
