"""Loading models and tokenizers: the built-in tiny one, local folders and Hugging Face ids."""
