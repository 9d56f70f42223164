"""The harness: workloads, tools, how they are measured, and the report that is made from what was measured."""
