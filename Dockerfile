FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.12-slim
LABEL io.modelcontextprotocol.server.name="io.github.primus-mcp/primus-mcp" \
      org.opencontainers.image.title="primus-mcp" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels primus-mcp \
 && rm -rf /wheels \
 && useradd --create-home --uid 10001 primus \
 && mkdir /data /work && chown primus /data /work
USER primus
ENV PYTHONUTF8=1 PYTHONUNBUFFERED=1
VOLUME /data
# Runs are kept in /data; workload and cluster files are read from /work: docker run -i --rm -v primus-runs:/data -v "$PWD":/work:ro primus-mcp
ENTRYPOINT ["primus-mcp", "serve", "--home", "/data", "--root", "/work"]
