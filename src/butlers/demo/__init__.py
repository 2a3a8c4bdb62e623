"""The demo: an invented life of six months, as calls of the butlers' own tools.

The same seed and the same day give the same life. It has trends (a falling weight, a dearer winter) and
mistakes (a payment entered twice, a person under two names, an implausible day), so that there is something
to find.
"""

from butlers.demo.life import DemoCall, invented_life

__all__ = ["DemoCall", "invented_life"]
