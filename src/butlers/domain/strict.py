"""How the types that travel are read: a key nobody declared is an error, not a thing to overlook."""

STRICT = {"extra": "forbid"}  # read by pydantic wherever a type with it is validated
