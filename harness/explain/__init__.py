"""Why a run went as it did: the worst stalls and what would shorten them, one request's story."""
