"""The dashboard: pages and a JSON API over the tools of the running butlers."""
