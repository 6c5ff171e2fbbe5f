"""From outcomes to statistics, claims, figures and the report."""
