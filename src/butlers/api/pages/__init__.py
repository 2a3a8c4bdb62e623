"""Pages of the dashboard, one file per subject."""
