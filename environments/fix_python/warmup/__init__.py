"""Making of the default policy from nothing: tokenizer, corpus, demonstrations, training."""
