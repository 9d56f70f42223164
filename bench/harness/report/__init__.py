"""The report: tables and charts, made from results and from nothing else."""
