"""The HTML report: one self-contained file that shows the stages, graphs, rules and checks of a conversion."""

from patcomp.report.page import html_page

__all__ = ["html_page"]
