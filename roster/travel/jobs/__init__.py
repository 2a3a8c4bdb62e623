"""Jobs of the Travel butler: cheap checks before its schedules, without a model."""
