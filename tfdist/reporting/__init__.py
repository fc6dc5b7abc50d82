"""What a training process tells the launcher. Standard library only; silent where there is no launcher."""

from tfdist.reporting.reports import report_failure, report_progress

__all__ = ["report_failure", "report_progress"]
