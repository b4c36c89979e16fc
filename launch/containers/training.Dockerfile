# The image that trains: MindFormers' own image for A2 or A3, with pclr-ms in it. Build it in a
# checkout of pclr-ms, on every host or once for your registry:
#   docker build -f launch/containers/training.Dockerfile --build-arg CHIP=a3 -t pclr-ms:1.8.0-a3 .
# CHIP: 910b for Atlas A2, a3 for Atlas A3. MindFormers 1.8.0's image has MindSpore 2.7.2 and CANN
# 8.5.0 (docker/OVERVIEW.md of MindFormers). Not built here: no host with Ascend was at hand.
ARG CHIP=910b
FROM swr.cn-south-1.myhuaweicloud.com/ascendhub/mindformers:1.8.0-${CHIP}-ubuntu22.04-py3.11

COPY . /opt/pclr-ms
RUN python -m pip install --no-cache-dir /opt/pclr-ms -c /opt/pclr-ms/requirements/mindspore_2_7.txt \
    && python -m pip check
