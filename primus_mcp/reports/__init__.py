"""What people read: tables, plots, exports, summaries."""
