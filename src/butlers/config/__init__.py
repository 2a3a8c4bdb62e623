"""butler.toml -> ButlerConfig, environment -> Settings; the only readers of both."""
