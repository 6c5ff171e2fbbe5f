"""What `import nitro` offers: training, runs and policies in a few lines of Python."""
