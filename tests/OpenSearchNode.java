import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** One OpenSearch node with HTTP and nothing else: home, address, HTTP port, transport port, then name=value. */
class OpenSearchNode {
    static class Served extends Node {
        Served(Environment environment, Collection<Class<? extends Plugin>> plugins) {
            super(environment, plugins, true);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Files.createDirectories(home.resolve("config"));
        Settings.Builder settings = Settings.builder()
                .put("path.home", home.toString())
                .put("cluster.name", "tailrace")
                .put("node.name", "one")
                .put("discovery.type", "single-node")
                .put("network.host", arguments[1])
                .put("http.port", arguments[2])
                .put("transport.port", arguments[3])
                .put("http.type", "netty4")
                .put("transport.type", "netty4")
                .put("cluster.routing.allocation.disk.threshold_enabled", false);
        for (int at = 4; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Environment environment =
                InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), home.resolve("config"), () -> "one");
        Node node = new Served(environment, List.of(Netty4Plugin.class));
        node.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        System.out.println("OpenSearch answers");
        Thread.currentThread().join();
    }
}
