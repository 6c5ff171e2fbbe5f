"""The paper's evaluation, and ours: each study writes JSON and a picture drawn from it."""
