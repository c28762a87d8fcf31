#!/bin/sh
# Entry point of the images with Spark. Kubernetes' Spark starts pods with the argument `driver` or `executor`, and with
# the variables that Spark's own image takes (kubernetes/dockerfiles/spark/entrypoint.sh of its distribution).
# Everything else is a command of tailrace.
set -eu

classpath="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*"
if [ -n "${HADOOP_CONF_DIR:-}" ]; then classpath="$HADOOP_CONF_DIR:$classpath"; fi
if [ -n "${SPARK_EXTRA_CLASSPATH:-}" ]; then classpath="$classpath:$SPARK_EXTRA_CLASSPATH"; fi
if [ -n "${SPARK_DIST_CLASSPATH:-}" ]; then classpath="$classpath:$SPARK_DIST_CLASSPATH"; fi

case "${1:-}" in
driver)
    shift
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...: one argument of Java each, blanks in it included.
    set --
    number=0
    while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
        eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
        number=$((number + 1))
    done
    exec tini -s -- "$JAVA_HOME/bin/java" "$@" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classpath:$PWD" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tini -s -- tailrace "$@"
    ;;
esac
