"""The key broker: a loopback proxy that adds the real key, counts tokens and enforces budgets.

A session's CLI is given the broker's address and a token of its own instead of a provider's key.
"""
