"""Jobs of the Health butler: cheap checks before its schedules, without a model."""
