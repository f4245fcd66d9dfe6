# One image for every process: `docker run notifier:0.1.0 worker`. How they belong together is in docker-compose.yml.
#
# Both stages name a full version. To pin the very bytes as well, ask the registry for the digest and write it behind
# the tag (python:3.11.14-slim-bookworm@sha256:…):
#   docker buildx imagetools inspect python:3.11.14-slim-bookworm --format '{{.Manifest.Digest}}'

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /build
COPY requirements-image.lock ./
# pip stays outside of what the final stage gets
RUN python3 -m venv --without-pip /opt/notifier \
    && pip --python /opt/notifier/bin/python install --no-cache-dir --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY notifier notifier
COPY providers providers
COPY migrations migrations
RUN pip --python /opt/notifier/bin/python install --no-cache-dir --no-deps --no-build-isolation . \
    && pip --python /opt/notifier/bin/python uninstall --yes setuptools

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="notifier" \
      org.opencontainers.image.description="Onboarding and follow-up mails, each sent once" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 notifier \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/notifier --shell /usr/sbin/nologin notifier \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/notifier
COPY --from=build /opt/notifier /opt/notifier
# Modules are compiled already, and the file system may be read-only. The ports are fixed: the health check asks them.
ENV PATH=/opt/notifier/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NOTIFIER_HOST=0.0.0.0 \
    NOTIFIER_API_PORT=8080 \
    NOTIFIER_METRICS_PORT=9090 \
    NOTIFIER_MOCK_PORT=8025 \
    NOTIFIER_MOCK_SMTP_PORT=1025 \
    NOTIFIER_DATA_DIR=/var/lib/notifier
WORKDIR /var/lib/notifier
USER 10001:10001
EXPOSE 8080 9090 8025 1025
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=10s --start-period=30s --retries=3 CMD ["python", "-m", "notifier.healthcheck"]
ENTRYPOINT ["notifier"]
CMD ["--help"]
