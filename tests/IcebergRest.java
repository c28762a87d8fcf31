import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog, of tables in a SQLite database: address, port, warehouse, the database's URL. */
class IcebergRest {
    public static void main(String[] arguments) throws Exception {
        Catalog catalog = CatalogUtil.buildIcebergCatalog(
                "rest",
                Map.of(
                        CatalogProperties.CATALOG_IMPL, JdbcCatalog.class.getName(),
                        CatalogProperties.FILE_IO_IMPL, "org.apache.iceberg.hadoop.HadoopFileIO",
                        CatalogProperties.WAREHOUSE_LOCATION, arguments[2],
                        CatalogProperties.URI, arguments[3],
                        "jdbc.schema-version", "V1"),
                new Configuration());
        ServletContextHandler handler = new ServletContextHandler();
        handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])));
        server.setHandler(handler);
        server.start();
        System.out.println("The catalog answers");
        server.join();
    }
}
