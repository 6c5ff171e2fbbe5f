"""Budget, bill and what is spent between plans."""
