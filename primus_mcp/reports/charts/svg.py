"""A drawing of the library made fit for its place: tips on the marks, a name for screen readers, light and dark, nothing superfluous."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from primus_mcp.reports.charts.theme import dark_style
from primus_mcp.reports.charts.words import SPOKEN, shown

NAMESPACE = "http://www.w3.org/2000/svg"
_DROPPED = ("role", "class", "style", "version", "aria-hidden", "aria-roledescription", "stroke-miterlimit")
_NUMBERS = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height")
_INHERITED = ("fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "stroke-opacity")
_LONG = re.compile(r"(\d+\.\d{2})\d+")
_CIRCLE = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0")
_PLACE = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")


def page_svg(drawing: str, spoken: str) -> str:
    """For a page: as wide as the page lets it be, colours by the page's style sheet."""
    root = _cleaned(drawing)
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": shown(spoken, SPOKEN)}
    return ElementTree.tostring(root, encoding="unicode")


def file_svg(drawing: str, title: str) -> str:
    """For a file that stands alone: its own title, and a style for dark mode."""
    root = _cleaned(drawing)
    root.attrib |= {"role": "img", "xmlns": NAMESPACE}
    for tag, text in (("style", dark_style()), ("title", shown(title))):
        child = Element(tag)
        child.text = text
        root.insert(0, child)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _cleaned(drawing: str) -> Element:
    root = ElementTree.fromstring(drawing)  # noqa: S314  what our own library drew: no entities, no foreign document
    for element in list(_elements(root)):
        element.tag = element.tag.rpartition("}")[2]
        tip = element.attrib.pop("aria-label", "")
        element.attrib = {
            name: _LONG.sub(r"\1", value) if name in _NUMBERS else value
            for name, value in element.attrib.items()
            if name not in _DROPPED and not name.startswith("{")
        }
        if "stroke" not in element.attrib and element.tag == "path":
            element.attrib.pop("stroke-width", None)
        _as_circle(element)
        if tip and element is not root:
            child = Element("title")
            child.text = tip
            element.insert(0, child)
    for element in root.iter("g"):
        _share(element)
    return root


def _as_circle(element: Element) -> None:
    """A round path as what it is: a third of the text."""
    round_path, place = _CIRCLE.fullmatch(element.get("d", "")), _PLACE.fullmatch(element.get("transform", ""))
    if round_path and place:
        del element.attrib["d"], element.attrib["transform"]
        element.tag = "circle"
        element.attrib = {"cx": place[1], "cy": place[2], "r": round_path[1], **element.attrib}


def _share(group: Element) -> None:
    """What all children have in common is said once."""
    for name in _INHERITED:
        values = {child.get(name) for child in group}
        if len(group) > 1 and len(values) == 1 and (value := values.pop()) is not None:
            group.set(name, value)
            for child in group:
                del child.attrib[name]


def _elements(root: Element) -> Iterator[Element]:
    """Every element that is seen: empty frames of groups, and labels that had no room, are taken out."""
    for parent in list(root.iter()):
        for child in list(parent):
            frame = child.get("class") in ("background", "foreground") and not {"fill", "stroke"} & set(child.attrib)
            if frame or child.get("opacity") == "0":
                parent.remove(child)
    return root.iter()
