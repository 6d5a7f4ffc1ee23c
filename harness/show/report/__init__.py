"""The report of a run: report.md, the comparison for terminals, the finding in sentences."""

from harness.show.report.comparison import comparison_text
from harness.show.report.finding import finding
from harness.show.report.markdown import report_text

__all__ = ["comparison_text", "finding", "report_text"]
