"""The control plane of crawls: front door, coordinator, autoscaler, frontier stores and reports."""
