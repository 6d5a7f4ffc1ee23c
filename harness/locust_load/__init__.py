"""Load from locust: the parts of the locustfile that know neither locust nor gevent."""
