"""The registry of skills: versions, resolution, and the packs on disk."""
