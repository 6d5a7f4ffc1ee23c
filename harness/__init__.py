"""What measures: experiments, records, metrics, reports and the command line."""
