"""Sentence embeddings computed locally: tokenizer, encoder, and loading on first use."""
