# Training on NVIDIA GPUs: docker build -t omniloom . && docker run --gpus all --ipc=host -v $PWD:/work omniloom train ...
# torch's wheels bring CUDA's libraries themselves; the base image has what the driver asks of a container.
FROM nvidia/cuda:12.8.1-base-ubuntu24.04

# The distribution's own versions, with its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/omniloom
ENV PATH=/opt/omniloom/bin:$PATH

COPY . /src
RUN pip install --no-cache-dir "/src[train,hf,eval,av,cloud,zstd,log]" && rm -rf /src

WORKDIR /work
ENTRYPOINT ["omniloom"]
CMD ["--help"]
