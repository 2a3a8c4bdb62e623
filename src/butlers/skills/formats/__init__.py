"""The written forms of a skill. Each reads leniently, reports every repair, and writes strictly."""
