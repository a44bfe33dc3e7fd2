"""Minimum cut of a directed graph with capacities (Dinic's algorithm, without recursion)."""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 60


class FlowNetwork:
    """A network of numbered vertices; an edge and its reverse stand next to each other."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.capacities: list[int] = []
        self.edges: list[list[int]] = []

    def vertex(self) -> int:
        """Add a vertex and return its number."""
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge."""
        for start, end, limit in ((tail, head, capacity), (head, tail, 0)):
            self.edges[start].append(len(self.heads))
            self.heads.append(end)
            self.capacities.append(limit)

    def source_side(self, source: int, sink: int) -> tuple[int, set[int]]:
        """Return a minimum cut's capacity and the vertices on the source's side of it."""
        flow = 0
        while (levels := self._levels(source))[sink] >= 0:
            flow += self._blocking_flow(source, sink, levels)
            if flow >= INFINITE:
                break
        return flow, {vertex for vertex, level in enumerate(levels) if level >= 0}

    def _levels(self, source: int) -> list[int]:
        levels = [-1] * len(self.edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self.edges[vertex]:
                head = self.heads[edge]
                if self.capacities[edge] > 0 and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    queue.append(head)
        return levels

    def _blocking_flow(self, source: int, sink: int, levels: list[int]) -> int:
        """Push flow along shortest paths until each of them has a saturated edge."""
        total = 0
        tried = [0] * len(self.edges)
        path: list[int] = []  # edges from the source to ``vertex``
        vertex = source
        while True:
            if vertex == sink:
                added = min(self.capacities[step] for step in path)
                total += added
                for step in path:
                    self.capacities[step] -= added
                    self.capacities[step ^ 1] += added
                full = next(i for i, step in enumerate(path) if self.capacities[step] == 0)
                vertex = self.heads[path[full] ^ 1]
                del path[full:]
                continue
            edge = self._next_edge(vertex, levels, tried)
            if edge is not None:
                path.append(edge)
                vertex = self.heads[edge]
            elif path:
                vertex = self.heads[path.pop() ^ 1]
                tried[vertex] += 1
            else:
                return total

    def _next_edge(self, vertex: int, levels: list[int], tried: list[int]) -> int | None:
        edges = self.edges[vertex]
        while tried[vertex] < len(edges):
            edge = edges[tried[vertex]]
            if self.capacities[edge] > 0 and levels[self.heads[edge]] == levels[vertex] + 1:
                return edge
            tried[vertex] += 1
        return None
