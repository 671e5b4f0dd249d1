"""The HTML report: one self-contained file that shows the stages, graphs, rules and checks of a conversion, or two
programs beside each other."""

from patcomp.report.page import difference_page, html_page
from patcomp.report.reading import program_in

__all__ = ["difference_page", "html_page", "program_in"]
