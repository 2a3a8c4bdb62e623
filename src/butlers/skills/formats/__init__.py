"""Skill formats: each reads leniently, reports every repair, and writes strictly."""
